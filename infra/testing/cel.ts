import { Environment } from "@marcbachmann/cel-js";
import type { Request } from "#lib/review.ts";

// Stands in for the API server's CEL where there is none: enough of the language for what rules say. An expression
// that errors is an error here too, as it is there.
const environment = new Environment({ unlistedVariablesAreDyn: true, enableOptionalTypes: true });

/** A matchCondition as a function of the request. */
export const condition = (expression: string) => {
  const evaluate = environment.parse(expression);
  return ({ object, oldObject, ...request }: Request): boolean => {
    const result: unknown = evaluate(
      celValue({ object: object ?? null, oldObject: oldObject ?? null, request: sent(request) }),
    );
    if (typeof result !== "boolean") throw new TypeError(`${expression} is ${typeof result}, not bool`);
    return result;
  };
};

/** CEL sees no field that is empty. */
const sent = (request: object) =>
  Object.fromEntries(Object.entries(request).filter(([, value]) => value !== "" && value !== undefined));

/** JSON's whole numbers are integers to CEL. */
const celValue = (value: unknown): Record<string, unknown> =>
  JSON.parse(JSON.stringify(value), (_, inner) => (Number.isSafeInteger(inner) ? BigInt(inner) : asMap(inner)));

/** A map has the keys that are in it: not those that every object of ours inherits. */
const asMap = (value: unknown) =>
  typeof value === "object" && value !== null && !Array.isArray(value) ? new Map(Object.entries(value)) : value;
