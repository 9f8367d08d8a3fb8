import type { FunctionDeclaration } from "./functions.ts";
import type { Macro } from "./parser/macros.ts";
import type { Type } from "./types.ts";
import * as types from "./types.ts";

/** The variables, functions, types and macros that expressions can use. */
export interface Environment {
  readonly variables: ReadonlyMap<string, Type>;
  readonly functions: ReadonlyMap<string, FunctionDeclaration>;
  readonly findStruct: (name: string) => StructType | undefined;
  readonly macros: readonly Macro[];
  /** Whether fields can have names in backquotes. */
  readonly hasQuotedNames: boolean;
  /**
   * Whether optionals behave as in a newer cel-go:
   * - `x.orValue(1)` is an error if x is no optional. In an older cel-go, it is x.
   * - `x.field` of an optional x selects from the value in x. An older cel-go first converts this value to Go and back:
   *   optional.none() becomes null, and quantity("1") an error.
   */
  readonly hasNewerOptionals: boolean;
  /** Whether `object.spec == 1` is an error, not false, if upstream holds the left map or list in a struct of Go. */
  readonly hasTypedObjects: boolean;
}

/** A type with named fields. */
export interface StructType {
  readonly name: string;
  readonly findField: (name: string) => Type | undefined;
}

/**
 * Creates an environment. If functions have the same name, they become one function with the overloads of all, in the
 * given order. If overloads have the same id, the last one counts.
 */
export const createEnvironment = (parts: {
  readonly variables: Readonly<Record<string, Type>>;
  readonly functions: readonly FunctionDeclaration[];
  readonly findStruct?: Environment["findStruct"];
  readonly macros: readonly Macro[];
  readonly hasQuotedNames: boolean;
  readonly hasNewerOptionals: boolean;
  readonly hasTypedObjects: boolean;
}): Environment => {
  const functions = new Map<string, FunctionDeclaration>();
  for (const added of parts.functions) {
    const present = functions.get(added.name);
    const overloads =
      present && new Map([...present.overloads, ...added.overloads].map((overload) => [overload.id, overload]));
    functions.set(added.name, overloads ? { ...added, ...present, overloads: [...overloads.values()] } : added);
  }
  return {
    ...parts,
    variables: new Map(Object.entries(parts.variables)),
    functions,
    findStruct: parts.findStruct ?? (() => undefined),
  };
};

/** The types that expressions can use as values, such as in `type(x) == int`, by their names. */
export const namedTypes: ReadonlyMap<string, Type> = new Map(
  [
    types.bool,
    types.bytes,
    types.double,
    types.duration,
    types.int,
    types.listOf(types.dyn),
    types.mapOf(types.dyn, types.dyn),
    types.nullType,
    types.string,
    types.timestamp,
    types.typeOf(),
    types.uint,
    types.optionalOf(types.dyn),
    types.opaque("net.IP"),
    types.opaque("net.CIDR"),
  ].map((type) => [type.name, type]),
);

/** Names of types that upstream's check accepts, but that its compilation of the program refuses. */
export const namedTypesWithoutValue: ReadonlyMap<string, Type> = new Map([
  ["duration", types.duration],
  ["timestamp", types.timestamp],
]);
