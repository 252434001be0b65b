"""Strings and token ids: tokenizer, chat template, stop strings. Never: engines, sockets, terminals."""
