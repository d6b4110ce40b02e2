"""Shows the stages of a compilation to people: listings, and the page of `einkorn explore`."""
