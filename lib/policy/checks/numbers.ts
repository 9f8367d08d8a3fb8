import { parseQuantity } from "../../objects/quantity.ts";
import { type Check, mapOf, shown, textThat } from "./shape.ts";

const decimal = /^[+-]?(\d{1,300}(\.\d{0,300})?|\.\d{1,300})([eE][+-]?\d{1,3})?$/;

/** Whether a text is a decimal number. */
export const isDecimal = (text: string): boolean => decimal.test(text);

const quantity: Check = (value, at, faults) => {
  if (Number.isInteger(value)) return;
  textThat((given) =>
    parseQuantity(given) === undefined ? `must be a quantity such as 500m or 1Gi, not ${shown(given)}` : undefined,
  )(value, at, faults);
};

/** Amounts by resource. */
export const quantities: Check = mapOf(quantity);

/** A factor of any size. */
export const factor: Check = textThat((value) =>
  isDecimal(value) && !(Number(value) < 0) ? undefined : `must be a decimal number such as "0.5", not ${shown(value)}`,
);

/** What is wrong with a factor that makes less of something. */
export const fractionFault = (value: string): string | undefined =>
  isDecimal(value) && Number(value) > 0 && Number(value) < 1
    ? undefined
    : `must be a decimal number between 0 and 1, such as "0.5", not ${shown(value)}`;
