# A loop with a tool, and a structured answer.
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from pydantic import BaseModel


@tool
def weather(city: str) -> str:
    """The weather of a city"""
    return "sunny in " + city


class City(BaseModel):
    """A city"""

    name: str


model = ChatAnthropic(model="haiku", max_tokens=1000)
bound = model.bind_tools([weather])
messages = [HumanMessage("Ask weather for Bern")]
first = bound.invoke(messages)
messages += [first, *(weather.invoke(call) for call in first.tool_calls)]
print(bound.invoke(messages).text)
print("parsed:", model.with_structured_output(City).invoke("A city").name)
