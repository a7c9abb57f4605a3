# A loop with a tool, and a structured answer.
from agents import Agent, Runner, function_tool
from pydantic import BaseModel


class City(BaseModel):
    name: str


@function_tool
def weather(city: str) -> str:
    """The weather of a city"""
    return "sunny in " + city


agent = Agent(name="Weather", model="haiku", tools=[weather])
print(Runner.run_sync(agent, "Ask weather for Bern").final_output)
parsed = Runner.run_sync(Agent(name="Cities", model="haiku", output_type=City), "A city")
print("parsed:", parsed.final_output.name)
