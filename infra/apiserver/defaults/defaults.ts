import type { KubernetesObject } from "#lib/review.ts";
import { type DecodingReport, findKubernetesTypeDecoder } from "./typed-reading.ts";

/** An object after decoding and defaulting, with what decoding found. */
export interface DefaultedObject extends Omit<DecodingReport, "trail"> {
  object: KubernetesObject;
}

/**
 * Returns an object as webhooks see it: decoded, with the API server's defaults. The given object isn't changed. An
 * object of an unknown kind, or one that the API server couldn't decode, is returned as it is.
 */
export const fillDefaults = (object: KubernetesObject): DefaultedObject => {
  if (complete.has(object)) return { object, strays: [], misfits: [] };
  const reading: DecodingReport = { trail: [], strays: [], misfits: [] };
  const { strays, misfits } = reading;
  const { apiVersion, kind } = object;
  const shape =
    typeof apiVersion === "string" && typeof kind === "string"
      ? findKubernetesTypeDecoder(apiVersion, kind)
      : undefined;
  const filled = shape?.read(object, reading) as KubernetesObject | undefined;
  if (misfits.length > 0 || filled === undefined) return { object, strays, misfits };
  complete.add(filled);
  return { object: filled, strays, misfits };
};

/**
 * The objects that `fillDefaults` returned. All API defaults are filled in, so they need no second pass; they must
 * not be changed.
 */
const complete = new WeakSet<KubernetesObject>();
