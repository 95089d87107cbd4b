"""The report's questions: a file a family, each with `QUESTIONS`; they are discovered."""
