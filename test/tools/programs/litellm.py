# A loop with a tool, and a structured answer.
import json

from litellm import completion
from pydantic import BaseModel

tools = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "The weather of a city",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}},
                "required": ["city"],
            },
        },
    }
]
messages = [{"role": "user", "content": "Ask weather for Bern"}]
message = completion(model="openai/haiku", messages=messages, tools=tools).choices[0].message
messages.append(message)
for call in message.tool_calls:
    city = json.loads(call.function.arguments)["city"]
    messages.append({"role": "tool", "tool_call_id": call.id, "content": "sunny in " + city})
print(completion(model="openai/haiku", messages=messages, tools=tools).choices[0].message.content)


class City(BaseModel):
    name: str


answer = completion(
    model="openai/haiku",
    messages=[{"role": "user", "content": "A city"}],
    response_format=City,
)
print("parsed:", City.model_validate_json(answer.choices[0].message.content).name)
