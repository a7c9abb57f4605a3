# A loop with a tool, and a structured answer.
from anthropic import Anthropic
from pydantic import BaseModel

client = Anthropic()
tools = [
    {
        "name": "weather",
        "description": "The weather of a city",
        "input_schema": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    }
]
messages = [{"role": "user", "content": "Ask weather for Bern"}]
first = client.messages.create(model="haiku", max_tokens=1000, messages=messages, tools=tools)
messages.append({"role": "assistant", "content": first.content})
results = [
    {
        "type": "tool_result",
        "tool_use_id": block.id,
        "content": "sunny in " + block.input["city"],
    }
    for block in first.content
    if block.type == "tool_use"
]
messages.append({"role": "user", "content": results})
second = client.messages.create(model="haiku", max_tokens=1000, messages=messages, tools=tools)
print(second.content[0].text)


class City(BaseModel):
    name: str


parsed = client.messages.parse(
    model="haiku",
    max_tokens=1000,
    messages=[{"role": "user", "content": "A city"}],
    output_format=City,
).parsed_output
print("parsed:", parsed.name)
