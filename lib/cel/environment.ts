import type { FunctionDeclaration } from "./functions.ts";
import type { Macro } from "./parser/macros.ts";
import type { Type } from "./types.ts";
import * as types from "./types.ts";

/** What expressions can name: variables, functions, types and macros. */
export interface Environment {
  readonly variables: ReadonlyMap<string, Type>;
  readonly functions: ReadonlyMap<string, FunctionDeclaration>;
  readonly findStruct: (name: string) => StructType | undefined;
  readonly macros: readonly Macro[];
  /** Whether fields can have names in backquotes. */
  readonly hasQuotedNames: boolean;
  /**
   * Whether `or` and `orValue` of a value that is no optional are an error, instead of the value; and whether a part of an
   * expression keeps the value in an optional, instead of Go's form of it, which empty optionals and quantities don't have.
   */
  readonly hasStrictOptionals: boolean;
  /** Whether to compare a map or a list of a typed object with a value of another type is an error. */
  readonly hasTypedObjects: boolean;
}

/** A type with named fields. */
export interface StructType {
  readonly name: string;
  readonly findField: (name: string) => Type | undefined;
}

/**
 * Creates an environment. Functions that are given several times have the overloads of all, in the order given; of two
 * overloads with the same id, the later one.
 */
export const createEnvironment = (parts: {
  readonly variables: Readonly<Record<string, Type>>;
  readonly functions: readonly FunctionDeclaration[];
  readonly findStruct?: Environment["findStruct"];
  readonly macros: readonly Macro[];
  readonly hasQuotedNames: boolean;
  readonly hasStrictOptionals: boolean;
  readonly hasTypedObjects: boolean;
}): Environment => {
  const functions = new Map<string, FunctionDeclaration>();
  for (const added of parts.functions) {
    const present = functions.get(added.name);
    const overloads = present && new Map([...present.overloads, ...added.overloads].map((one) => [one.id, one]));
    functions.set(added.name, overloads ? { ...added, ...present, overloads: [...overloads.values()] } : added);
  }
  return {
    ...parts,
    variables: new Map(Object.entries(parts.variables)),
    functions,
    findStruct: parts.findStruct ?? (() => undefined),
  };
};

/** The types that expressions can name in every environment, and that are values at run time, by their names. */
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

/** Names that upstream knows when it checks an expression, and refuses when it makes a program of it. */
export const namedTypesWithoutValue: ReadonlyMap<string, Type> = new Map([
  ["duration", types.duration],
  ["timestamp", types.timestamp],
]);
