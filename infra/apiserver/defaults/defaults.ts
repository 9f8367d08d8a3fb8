import type { KubernetesObject } from "#lib/review.ts";
import { type Reading, shapeOf } from "./typed-reading.ts";

/** An object as the API server understands it. */
export interface Filled extends Omit<Reading, "trail"> {
  object: KubernetesObject;
}

/**
 * What the API server makes of an object before admission: read, with everything filled in that is left open, as the
 * webhooks see it. The given object stays as it is. One of a kind that isn't known here is given back, and so is one that
 * the API server couldn't read.
 */
export const fill = (object: KubernetesObject): Filled => {
  if (whole.has(object)) return { object, strays: [], misfits: [] };
  const reading: Reading = { trail: [], strays: [], misfits: [] };
  const { strays, misfits } = reading;
  const { apiVersion, kind } = object;
  const shape = typeof apiVersion === "string" && typeof kind === "string" ? shapeOf(apiVersion, kind) : undefined;
  // What was read without a misfit is an object still.
  const filled = shape?.read(object, reading) as KubernetesObject | undefined;
  if (misfits.length > 0 || filled === undefined) return { object, strays, misfits };
  whole.add(filled);
  return { object: filled, strays, misfits };
};

/** What came of it already, and is nobody's to change. */
const whole = new WeakSet<KubernetesObject>();
