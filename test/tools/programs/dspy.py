# A loop with a tool, and a structured answer. DSPy looks up the features of a model by its name;
# for a name that it does not know, a subclass names them.
import dspy
from pydantic import BaseModel


class Gateway(dspy.LM):
    supports_function_calling = True
    supports_response_schema = True


class City(BaseModel):
    name: str


class Ask(dspy.Signature):
    question: str = dspy.InputField()
    tools: list[dspy.Tool] = dspy.InputField()
    calls: dspy.ToolCalls = dspy.OutputField()


class Name(dspy.Signature):
    question: str = dspy.InputField()
    city: City = dspy.OutputField()


def weather(city: str) -> str:
    """The weather of a city"""
    return "sunny in " + city


lm = Gateway("openai/haiku", max_tokens=4000, cache=False)
dspy.configure(lm=lm, adapter=dspy.JSONAdapter())
tools = [dspy.Tool(weather)]
for call in dspy.Predict(Ask)(question="Ask weather for Bern", tools=tools).calls.tool_calls:
    print("weather answered:", call.execute(functions=tools))
print("parsed:", dspy.Predict(Name)(question="A city").city.name)
