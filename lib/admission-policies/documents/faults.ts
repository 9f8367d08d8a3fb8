// Creates faults of policies and bindings with the texts of upstream's validation.
import { quoteAsGo } from "../../objects/go/quoted.ts";

export type FieldPath = readonly (string | number)[];

/** A fault of one field. `sentence` begins with the path of the field. */
export interface FieldFault {
  path: FieldPath;
  sentence: string;
}

/** Returns a path such as `spec.validations[0].expression`. */
export const formatFieldPath = (path: FieldPath): string =>
  path.map((step, index) => (typeof step === "number" ? `[${step}]` : index === 0 ? step : `.${step}`)).join("");

const createFault = (path: FieldPath, ...parts: string[]): FieldFault => {
  return { path, sentence: [formatFieldPath(path), ...parts.filter(Boolean)].join(": ") };
};
const formatValue = (value: unknown): string => (typeof value === "string" ? quoteAsGo(value) : JSON.stringify(value));

export const createRequiredFault = (path: FieldPath, detail = ""): FieldFault =>
  createFault(path, "Required value", detail);
export const createInvalidFault = (path: FieldPath, value: unknown, detail: string): FieldFault =>
  createFault(path, "Invalid value", formatValue(value), detail);
export const createForbiddenFault = (path: FieldPath, detail: string): FieldFault =>
  createFault(path, "Forbidden", detail);
export const createDuplicateFault = (path: FieldPath, value: string): FieldFault =>
  createFault(path, "Duplicate value", quoteAsGo(value));
export const createTooManyFault = (path: FieldPath, count: number, most: number): FieldFault =>
  createFault(path, "Too many", String(count), `must have at most ${most} items`);

/** Returns a fault if a value is none of `supported`. The message lists them in this order. */
export const findChoiceFaults = (path: FieldPath, value: string, supported: readonly string[]): FieldFault[] =>
  supported.includes(value)
    ? []
    : [
        createFault(
          path,
          "Unsupported value",
          quoteAsGo(value),
          `supported values: ${supported.map(quoteAsGo).join(", ")}`,
        ),
      ];

/** Returns the fault of an expression that doesn't compile. */
export const findExpressionFaults = (
  path: FieldPath,
  text: string,
  compiled: { error: string } | { program: unknown },
): FieldFault[] => {
  if (!("error" in compiled)) return [];
  const { error } = compiled;
  // Upstream reports an internal error if an expression is valid, but no program can be made of it.
  if (error.startsWith("program instantiation failed")) return [createFault(path, "Internal error", error)];
  return [createInvalidFault(path, text, error)];
};
