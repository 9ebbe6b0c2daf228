"""The protocols as protocol buffers: two .proto files, and the modules that `python -m` of this package makes of them.

The modules keep their types in pools of their own. In the default pool they would collide with those of a client, such
as `tritonclient`, in the same process: both name their package `inference`.
"""
