"""The first step of a transformer in one pass: what words mean, and where they stand."""

from einkorn.dsl import InputTensor, OutputTensor, float32, foreach, int64, register


@register("minilm::embed")
def embed(
    out: OutputTensor[float32, "batch length size"],
    words: InputTensor[int64, "batch length"],
    meanings: InputTensor[float32, "vocabulary size"],
    places: InputTensor[float32, "longest size"],
    kinds: InputTensor[float32, "2 size"],
) -> None:
    """The row of each word, with that of its place, and that of the first kind of sentence."""

    def element(i):
        _, place, k = i[0], i[1], i[2]
        return meanings[words[i[0], place], k] + places[place, k] + kinds[0, k]

    foreach(out, element)


@embed.reference
def embed_reference(words, meanings, places, kinds):
    return meanings[words] + places[: words.shape[1]] + kinds[0]
