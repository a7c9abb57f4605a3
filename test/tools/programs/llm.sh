# A loop with a tool, and a structured answer.
printf '  supports_tools: true\n  supports_schema: true\n' >> extra-openai-models.yaml
llm -m gateway --key "$GATEWAY_KEY" "Ask weather for Bern" --functions '
def weather(city: str) -> str:
    """The weather of a city"""
    return "sunny in " + city
'
schema='{"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}'
answer=$(llm -m gateway --key "$GATEWAY_KEY" --schema "$schema" "A city")
echo "parsed: $answer"
