# A loop with a tool, and a structured answer. The simulated model names the file after its field.
echo "sunny in Bern" > file_path
claude -p "Use Read"
schema='{"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}'
answer=$(claude -p "A city" --json-schema "$schema")
echo "parsed: $answer"
