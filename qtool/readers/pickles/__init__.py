"""Reads pickles as data, opcode by opcode: nothing that a pickle names is imported, and nothing is called."""
