import { countReading } from "../../cost-formulas.ts";
import { type FunctionDeclaration, overload } from "../../functions.ts";
import { dyn, string, type Type } from "../../types.ts";

/** The type of the operations that a mutation of type JSONPatch returns. */
export const jsonPatchStruct: { name: string; findField(name: string): Type | undefined } = {
  name: "JSONPatch",
  findField: (name) => {
    if (["op", "path", "from"].includes(name)) return string;
    // As in upstream, a field of any other name exists, but its type has no name (the kind is arbitrary). So no value
    // has this type, and an expression that reads the field doesn't compile.
    return name === "value" ? dyn : { kind: "bool", name: "", parameters: [] };
  },
};

const escapeKey = (key: string): string => key.replace(/[~/]/g, (character) => (character === "~" ? "~0" : "~1"));

export const jsonPatchFunctions: readonly FunctionDeclaration[] = [
  {
    name: "jsonpatch.escapeKey",
    overloads: [overload("string_jsonpatch_escapeKey_string", [string], string, escapeKey)],
    cost: countReading,
  },
];
