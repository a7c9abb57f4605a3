# A loop with a tool, and a structured answer.
from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput


class City(BaseModel):
    name: str


agent = Agent("openai-chat:haiku")


@agent.tool_plain
def weather(city: str) -> str:
    """The weather of a city"""
    return "sunny in " + city


print(agent.run_sync("Ask weather for Bern").output)
parsed = Agent("openai-chat:haiku", output_type=NativeOutput(City)).run_sync("A city").output
print("parsed:", parsed.name)
