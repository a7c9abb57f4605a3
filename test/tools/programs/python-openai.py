# A loop with a tool, and a structured answer.
import json

from openai import OpenAI, pydantic_function_tool
from pydantic import BaseModel

client = OpenAI()


class weather(BaseModel):
    """The weather of a city"""

    city: str


tools = [pydantic_function_tool(weather)]
messages = [{"role": "user", "content": "Ask weather for Bern"}]
first = client.chat.completions.create(model="haiku", messages=messages, tools=tools)
message = first.choices[0].message
messages.append(message)
for call in message.tool_calls:
    city = json.loads(call.function.arguments)["city"]
    messages.append({"role": "tool", "tool_call_id": call.id, "content": "sunny in " + city})
second = client.chat.completions.create(model="haiku", messages=messages, tools=tools)
print(second.choices[0].message.content)


class City(BaseModel):
    name: str


parsed = client.chat.completions.parse(
    model="haiku",
    messages=[{"role": "user", "content": "A city"}],
    response_format=City,
)
print("parsed:", parsed.choices[0].message.parsed.name)
