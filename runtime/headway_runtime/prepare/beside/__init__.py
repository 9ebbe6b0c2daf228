"""What lies beside a program in its archive: Headway's own ``record`` with its ``golden`` samples, and the example
inputs that torch adds (``samples``), whose pickle is read by a machine that calls nothing (``unpickle``).
"""
