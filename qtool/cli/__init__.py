"""The commands: options to a settled record, to a workflow, to a report, to an exit status."""
