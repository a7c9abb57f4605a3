# A loop with a tool, and a structured answer. The simulated model searches for the name of the
# field, and must not find it in the history of the tool.
mkdir -p work && cd work
echo "pattern: sunny in Bern" > weather.txt
qwen --auth-type openai -p "Use grep_search"
schema='{"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}'
answer=$(qwen --auth-type openai -p "Use structured_output" --json-schema "$schema")
echo "parsed: $answer"
