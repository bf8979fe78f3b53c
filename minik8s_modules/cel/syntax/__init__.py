"""From text to a tree: ``lexer`` cuts tokens, ``parser`` builds ``nodes``, ``macros`` knows ``all``, ``map`` and so on.

Grammar and limits are those of cel-go 0.22 (parser/gen/CEL.g4).
"""
