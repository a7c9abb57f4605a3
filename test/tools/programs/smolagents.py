# A loop with a tool, and a structured answer.
import json
import os

from smolagents import OpenAIModel, tool


@tool
def weather(city: str) -> str:
    """The weather of a city

    Args:
        city: the city
    """
    return "sunny in " + city


model = OpenAIModel(
    model_id="haiku",
    api_base=os.environ["OPENAI_BASE_URL"],
    api_key=os.environ["OPENAI_API_KEY"],
    tool_choice="auto",
)
messages = [{"role": "user", "content": "Ask weather for Bern"}]
first = model(messages, tools_to_call_from=[weather])
call = first.tool_calls[0]
arguments = call.function.arguments
if isinstance(arguments, str):
    arguments = json.loads(arguments)
print("weather answered:", weather(**arguments))
schema = {
    "type": "object",
    "properties": {"name": {"type": "string"}},
    "required": ["name"],
    "additionalProperties": False,
}
answer = model(
    [{"role": "user", "content": "A city"}],
    response_format={
        "type": "json_schema",
        "json_schema": {"name": "city", "strict": True, "schema": schema},
    },
)
print("parsed:", json.loads(answer.content)["name"])
