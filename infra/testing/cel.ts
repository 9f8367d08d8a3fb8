import { Environment } from "@marcbachmann/cel-js";
import type { AdmissionRequest } from "#lib/review.ts";

// Replaces the API server's CEL in tests: enough of the language for the expressions in rules. An expression that fails
// throws here, as it does there.
const environment = new Environment({ unlistedVariablesAreDyn: true, enableOptionalTypes: true });

export const condition = (expression: string) => {
  const evaluate = environment.parse(expression);
  return ({ object, oldObject, ...request }: AdmissionRequest): boolean => {
    const result: unknown = evaluate(
      celValue({ object: object ?? null, oldObject: oldObject ?? null, request: sent(request) }),
    );
    if (typeof result !== "boolean") throw new TypeError(`${expression} is ${typeof result}, not bool`);
    return result;
  };
};

/** Leaves out empty fields, which the API server's CEL doesn't see. */
const sent = (request: object) =>
  Object.fromEntries(Object.entries(request).filter(([, value]) => value !== "" && value !== undefined));

/** Converts whole numbers of JSON to integers of CEL. */
const celValue = (value: unknown): Record<string, unknown> =>
  JSON.parse(JSON.stringify(value), (_, inner) => (Number.isSafeInteger(inner) ? BigInt(inner) : asMap(inner)));

/** Converts objects to maps, which have no inherited keys. */
const asMap = (value: unknown) =>
  typeof value === "object" && value !== null && !Array.isArray(value) ? new Map(Object.entries(value)) : value;
