// Prints which sentences are nearest to each question: see export_minilm.py.
use std::ffi::{c_char, CStr};

const WIDTH: usize = 384;
const NEAREST: usize = 3;

/// `einkorn_failure` of minilm.h.
#[repr(C)]
struct Failure {
    status: i32,
    argument: i32,
    axis: i32,
    row: i32,
    expected: i64,
    got: i64,
    values: [i64; 28],
}

#[link(name = "minilm")]
extern "C" {
    fn minilm(
        words: *const i64, mask: *const i64, batch: i64, length: i64,
        hidden: *mut f32, direction: *mut f32, why: *mut Failure,
    ) -> i32;
    fn minilm_describe(why: *const Failure, text: *mut c_char, room: usize) -> usize;
}

struct Sentence {
    text: String,
    direction: [f32; WIDTH],
}

/// What a sentence means.
fn direction(words: &[i64]) -> Result<[f32; WIDTH], String> {
    let mask = vec![1i64; words.len()];
    let mut hidden = vec![0f32; words.len() * WIDTH];
    let mut result = [0f32; WIDTH];
    let mut why = Failure { status: 0, argument: -1, axis: -1, row: -1, expected: 0, got: 0, values: [0; 28] };
    let length = words.len() as i64;
    // The arrays have the sizes that minilm.h gives its tensors, and live until the call returns.
    let status = unsafe {
        let (hidden, result) = (hidden.as_mut_ptr(), result.as_mut_ptr());
        minilm(words.as_ptr(), mask.as_ptr(), 1, length, hidden, result, &mut why)
    };
    if status == 0 {
        return Ok(result);
    }
    let mut text = [0 as c_char; 1000];
    unsafe {
        minilm_describe(&why, text.as_mut_ptr(), text.len());
        Err(CStr::from_ptr(text.as_ptr()).to_string_lossy().into_owned())
    }
}

/// A line: how many numbers, the numbers, the text.
fn read_sentence(line: &str) -> Result<Sentence, String> {
    let (count, rest) = line.split_once(' ').ok_or("a line has no numbers")?;
    let count: usize = count.parse().map_err(|_| "a count is not a number")?;
    let parts: Vec<&str> = rest.splitn(count + 1, ' ').collect();
    let words: Result<Vec<i64>, _> = parts.iter().take(count).map(|word| word.parse()).collect();
    let words = words.map_err(|_| "a word is not a number")?;
    let text = parts.get(count).ok_or("a line has no text")?.to_string();
    Ok(Sentence { text, direction: direction(&words)? })
}

fn likeness(a: &Sentence, b: &Sentence) -> f32 {
    a.direction.iter().zip(&b.direction).map(|(x, y)| x * y).sum()
}

fn main() -> Result<(), String> {
    let path = std::env::args().nth(1).unwrap_or("sentences.txt".into());
    let file = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    let mut lines = file.lines();
    let head = lines.next().and_then(|line| line.split(' ').next()).ok_or("the file is empty")?;
    let questions: usize = head.parse().map_err(|_| "the first line has no count")?;
    let all = lines.map(read_sentence).collect::<Result<Vec<Sentence>, String>>()?;

    for question in &all[..questions] {
        let mut ranked: Vec<&Sentence> = all[questions..].iter().collect();
        ranked.sort_by(|a, b| likeness(question, b).total_cmp(&likeness(question, a)));
        println!("\n{}", question.text);
        for sentence in ranked.iter().take(NEAREST) {
            println!("  {:.2}  {}", likeness(question, sentence), sentence.text);
        }
    }
    Ok(())
}
