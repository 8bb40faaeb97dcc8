"""Language models: answers explained token by token, prompts, and answers as classes."""
