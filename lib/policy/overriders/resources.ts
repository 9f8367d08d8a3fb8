import {
  applyToEach,
  deleteMember,
  getOrCreateMap,
  getOwn,
  isTextOrNumber,
  type JsonMap,
  readListIfSet,
  readOptionalMap,
  setMemberToCopy,
  unescapeJsonPointerStep,
} from "../../json.ts";
import {
  canonicalizeQuantity,
  parseQuantity,
  type Quantity,
  roundToUnits,
  roundUpToThousandths,
} from "../../objects/quantity.ts";
import type { OverrideTemplate } from "../types.ts";
import { type ExactFraction, parseDecimal } from "../values/decimals.ts";
import { quoteValue } from "../values/texts.ts";

const lists = ["requests", "limits"] as const;

/**
 * Applies a template of resources in place: sets or removes requests and limits of the pod's first container. As in
 * kinitiras, each name in the template is a step of a JSON pointer, in which `~1` means a slash.
 */
export const changeResources = (podSpec: JsonMap, { operation, resources }: OverrideTemplate): boolean => {
  const amounts = readOptionalMap(resources, "template.resources");
  if (amounts === undefined) throw new Error("template.resources is missing");
  const container = findFirstContainer(podSpec);
  if (container === undefined) return false;
  return applyToEach(lists, (list) => {
    const quantities = Object.entries(readOptionalMap(getOwn(amounts, list), `template.resources.${list}`) ?? {});
    return applyToEach(quantities, ([name, quantity]) =>
      operation === "remove"
        ? removeQuantity(container, list, unescapeJsonPointerStep(name))
        : setQuantity(
            container,
            list,
            unescapeJsonPointerStep(name),
            parseTemplateQuantity(quantity, `template.resources.${list}[${JSON.stringify(name)}]`),
            quantity,
          ),
    );
  });
};

const nanosPerMilli = 10n ** 6n;
const nanosPerUnit = 10n ** 9n;

/** The resources that `resourcesOversell` can change: the field of the factor, the resource's name and its unit. */
export const templateOversellFactors = [
  { factor: "cpuFactor", name: "cpu", unit: nanosPerMilli, suffix: "m" },
  { factor: "memoryFactor", name: "memory", unit: nanosPerUnit, suffix: "" },
  { factor: "diskFactor", name: "ephemeral-storage", unit: nanosPerUnit, suffix: "" },
] as const;

/** Sets requests of the first container to its limits multiplied by a factor below 1, or removes the requests. */
export const applyOversellToFirstContainer = (
  podSpec: JsonMap,
  { operation, resourcesOversell }: OverrideTemplate,
): boolean => {
  const factors = readOptionalMap(resourcesOversell, "template.resourcesOversell");
  const wanted = templateOversellFactors.filter(({ factor }) => (getOwn(factors, factor) ?? "") !== "");
  if (wanted.length === 0)
    throw new Error(
      `template.resourcesOversell must have at least one of ${templateOversellFactors.map(({ factor }) => factor).join(", ")}`,
    );
  const container = findFirstContainer(podSpec);
  if (container === undefined) return false;
  return applyToEach(wanted, ({ factor, name, unit, suffix }) => {
    if (operation === "remove") return removeQuantity(container, "requests", name);
    const fraction = requireFractionBelowOne(getOwn(factors, factor), `template.resourcesOversell.${factor}`);
    const limit = getQuantity(container, "limits", name);
    // As in kinitiras, a disk limit of 0 sets no request.
    if (limit === undefined || (name === "ephemeral-storage" && limit.nanos === 0n)) return false;
    // As in kinitiras, a CPU request that is written as "0" stays 0, whatever the limit is.
    const staysZero = name === "cpu" && getOwn(getQuantities(container, "requests"), name) === "0";
    const text = `${staysZero ? 0n : multiplyRounded(limit, fraction, unit)}${suffix}`;
    return setQuantity(container, "requests", name, parseTemplateQuantity(text, name), text);
  });
};

const findFirstContainer = (podSpec: JsonMap): JsonMap | undefined =>
  readOptionalMap(readListIfSet(podSpec.containers, "spec.containers")?.[0], "spec.containers[0]");

const getQuantities = (container: JsonMap, list: string): JsonMap | undefined =>
  readOptionalMap(getOwn(readOptionalMap(getOwn(container, "resources"), "resources"), list), `resources.${list}`);

const getQuantity = (container: JsonMap, list: string, name: string): Quantity | undefined => {
  const value = getOwn(getQuantities(container, list), name);
  return value === undefined || value === null ? undefined : parseTemplateQuantity(value, `resources.${list}.${name}`);
};

const removeQuantity = (container: JsonMap, list: string, name: string): boolean => {
  const quantities = getQuantities(container, list);
  return quantities !== undefined && deleteMember(quantities, name);
};

/** Sets a quantity unless the present one has the same amount, because the API server writes quantities differently. */
const setQuantity = (
  container: JsonMap,
  list: string,
  name: string,
  { nanos }: Quantity,
  written: unknown,
): boolean => {
  const present = getOwn(getQuantities(container, list), name);
  if (isTextOrNumber(present) && parseQuantity(present)?.nanos === nanos) return false;
  return setMemberToCopy(
    getOrCreateMap(getOrCreateMap(container, "resources", "resources"), list, `resources.${list}`),
    name,
    written,
  );
};

export const requireFactor = (text: unknown, field: string): ExactFraction => {
  const factor = isTextOrNumber(text) ? parseDecimal(text) : undefined;
  if (factor === undefined || factor.numerator < 0n)
    throw new Error(`${field} must be a decimal such as "0.5", not ${quoteValue(text)}`);
  return factor;
};

export const requireFractionBelowOne = (text: unknown, field: string): ExactFraction => {
  const factor = requireFactor(text, field);
  if (factor.numerator === 0n || factor.numerator >= factor.denominator)
    throw new Error(`${field} must be greater than 0 and less than 1, not ${quoteValue(text)}`);
  return factor;
};

export const parseTemplateQuantity = (value: unknown, field: string): Quantity => {
  const quantity = isTextOrNumber(value) ? parseQuantity(value) : undefined;
  if (quantity === undefined) throw new Error(`${field} must be a quantity, not ${quoteValue(value)}`);
  return quantity;
};

/**
 * Multiplies a quantity by a factor. The result is a number of units; a unit has `unitNanos` nanos. Half a unit is
 * rounded away from zero.
 */
const multiplyRounded = ({ nanos }: Quantity, { numerator, denominator }: ExactFraction, unitNanos: bigint): bigint => {
  const [dividend, divisor] = [nanos * numerator, denominator * unitNanos];
  return (2n * dividend + (dividend < 0n ? -divisor : divisor)) / (2n * divisor);
};

/**
 * Multiplies a quantity by a factor. The result is truncated to thousandths of a CPU or to whole bytes, and written as
 * the API server does. It is calculated in floating point, as in kinitiras: 100 times 0.29 is 28 bytes.
 */
export const multiplyTruncated = (quantity: Quantity, factor: number, isCpu: boolean): string => {
  const product = Number(isCpu ? roundUpToThousandths(quantity) : roundToUnits(quantity)) * factor;
  if (!Number.isFinite(product)) throw new Error(`${factor} times ${quantity.text} is more than there can be`);
  const count = BigInt(Math.trunc(product));
  return isCpu
    ? canonicalizeQuantity({ nanos: count * 10n ** 6n, notation: "decimal" })
    : canonicalizeQuantity({ nanos: count * 10n ** 9n, notation: "binary" });
};
