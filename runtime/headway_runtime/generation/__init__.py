"""Continuous batching: text from a decoder that was exported to the contract `headway.generate/v1`.

A request (tokens, sampling, where to stop) goes in; pieces of text come out as they are made. One step is one run of
the program: sequences join and leave between two steps. Read `values` for what goes in and out, then `scheduler` for
what the next step holds, then `engine` for the thread that runs it.
"""
