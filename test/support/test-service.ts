// A service with methods that the real ones lack so far: a stream for persons, and one for
// everybody. Its options are those of real methods.

import {
  create,
  createFileRegistry,
  type MessageInitShape,
  setExtension,
} from "@bufbuild/protobuf";
import {
  FieldDescriptorProto_Label,
  FieldDescriptorProto_Type,
  FieldOptionsSchema,
  FileDescriptorProtoSchema,
  MethodOptionsSchema,
} from "@bufbuild/protobuf/wkt";
import {
  audited,
  CallersSchema,
  callers,
  Recorded,
  recorded,
  strong,
} from "../../gen/gateway/common/v1/options_pb.ts";
import { AccountRole, AdminScope, OperatorRole } from "../../gen/gateway/common/v1/roles_pb.ts";

type Marks = {
  readonly callers: MessageInitShape<typeof CallersSchema>;
  readonly audited?: true;
  readonly strong?: true;
};

const methods: Readonly<Record<string, Marks & { readonly streams?: true }>> = {
  Read: {
    callers: {
      key: true,
      admin: AdminScope.READ,
      person: AccountRole.VIEWER,
      operatorRole: OperatorRole.SUPPORT,
    },
  },
  Change: {
    callers: { admin: AdminScope.ALL, person: AccountRole.OWNER, operatorRole: OperatorRole.ADMIN },
    audited: true,
    strong: true,
  },
  Watch: { callers: { person: AccountRole.MEMBER }, streams: true },
  Open: { callers: { anyone: true } },
};

function optionsOf(marks: Marks) {
  const options = create(MethodOptionsSchema);
  setExtension(options, callers, create(CallersSchema, marks.callers));
  if (marks.audited) setExtension(options, audited, true);
  if (marks.strong) setExtension(options, strong, true);
  return options;
}

function fieldOptions(when: Recorded) {
  const options = create(FieldOptionsSchema);
  if (when !== Recorded.UNSPECIFIED) setExtension(options, recorded, when);
  return options;
}

const text = (name: string, number: number) => ({
  name,
  options: fieldOptions(name === "account_id" ? Recorded.ALWAYS : Recorded.UNSPECIFIED),
  number,
  label: FieldDescriptorProto_Label.OPTIONAL,
  type: FieldDescriptorProto_Type.STRING,
  jsonName: name.replace(/_(.)/g, (_, letter: string) => letter.toUpperCase()),
});

/** Texts that the audit records of an answer alone. */
const texts = (number: number) => ({
  ...text("texts", number),
  options: fieldOptions(Recorded.IN_ANSWERS),
  label: FieldDescriptorProto_Label.REPEATED,
});
const inner = (number: number) => ({
  ...{ name: "inner", jsonName: "inner", number, label: FieldDescriptorProto_Label.OPTIONAL },
  ...{ type: FieldDescriptorProto_Type.MESSAGE, typeName: ".test.Inner" },
});

const file = create(FileDescriptorProtoSchema, {
  name: "test.proto",
  package: "test",
  syntax: "proto3",
  messageType: [
    { name: "Request", field: [text("account_id", 1), text("secret", 2), texts(3), inner(4)] },
    { name: "OpenRequest", field: [text("secret", 2)] },
    { name: "Answer", field: [text("account_id", 1), text("secret", 2), texts(3), inner(4)] },
    { name: "Inner", field: [texts(1)] },
  ],
  service: [
    {
      name: "TestService",
      method: Object.entries(methods).map(([name, { streams, ...marks }]) => ({
        name,
        inputType: name === "Open" ? ".test.OpenRequest" : ".test.Request",
        outputType: ".test.Answer",
        serverStreaming: streams ?? false,
        options: optionsOf(marks),
      })),
    },
  ],
});

const registry = createFileRegistry(file, () => undefined);

function found<T>(desc: T | undefined): T {
  if (!desc) throw new Error("the test service is not in its file");
  return desc;
}

/**
 * Methods `read`, `change`, `watch` and `open`, with `{ account_id, secret, texts, inner }` both
 * ways. `open` takes a secret alone.
 */
export const testService = found(registry.getService("test.TestService"));
export const answerType = found(registry.getMessage("test.Answer"));
export const innerType = found(registry.getMessage("test.Inner"));
