"""Packed data sets, for data larger than memory: folders of flat files, written in bounded memory and memory-mapped when read."""
