"""Exporters: from the reference program to the files of other runtimes; one file a format."""
