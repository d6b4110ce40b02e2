"""The C API: C sources with which programs run exported models, and the program that builds them."""
