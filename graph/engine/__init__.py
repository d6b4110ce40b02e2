"""Runs graphs: sessions, models, calls; finds, compiles and loads their code."""
