import { declareMethod, type FunctionDeclaration } from "../../functions.ts";
import { bool, dyn } from "../../types.ts";
import { isList, toArray, type Value } from "../../values.ts";
import { countParts } from "../lists.ts";
import { isSame } from "../standard.ts";

/** Reports whether a list has a value, or whether anything else is equal to it. */
const includes = (target: Value, value: Value): boolean =>
  (isList(target) ? toArray(target) : [target]).some((element) => isSame(element, value));

/** The functions that version 1 of Kubernetes' CEL library for lists added. `countParts` computes a call's cost. */
export const includesFunctions: readonly FunctionDeclaration[] = [
  declareMethod("includes", "list_includes_dyn_dyn", [dyn, dyn], bool, includes, countParts),
];
