import { readFileSync } from "node:fs";
import { parse } from "yaml";
import { splitApiVersion } from "#lib/objects/api-version.ts";
import { toPlural } from "#lib/recording/recorded-answers.ts";
import type { AdmissionRequest, KubernetesObject } from "#lib/review.ts";

/** An object with secrets, and further fields of a request with this object. `what` describes the object. */
export interface SecretSample extends Partial<Pick<AdmissionRequest, "oldObject" | "options">> {
  what: string;
  /** The secrets in plain text. The object may have them in base64. */
  secrets: string[];
  object: KubernetesObject;
  user?: AdmissionRequest["userInfo"];
}

export const readSecrets = (): SecretSample[] =>
  parse(readFileSync(new URL("fixtures/secrets.yaml", import.meta.url), "utf8"));

/** Builds a request that creates the sample's object, or updates its old object. */
export const buildSecretRequest = ({ object, oldObject, options = null, user }: SecretSample): AdmissionRequest => {
  const { apiVersion = "v1", kind = "", metadata = {} } = object;
  const { group, version } = splitApiVersion(apiVersion);
  return {
    uid: "1",
    kind: { group, version, kind },
    resource: { group, version, resource: toPlural(kind) },
    name: metadata.name ?? "",
    namespace: metadata.namespace ?? "shop",
    operation: oldObject ? "UPDATE" : "CREATE",
    userInfo: user ?? { username: "jane", groups: ["developers"] },
    object,
    ...(oldObject !== undefined && { oldObject }),
    options,
  };
};

/** Returns the secrets in a text: plain, escaped as in JSON, or at any position in base64. */
export const findSecrets = (text: string, { secrets }: SecretSample): string[] =>
  secrets.filter((secret) => listForms(secret).some((form) => text.includes(form)));

const listForms = (secret: string): string[] => [
  secret,
  JSON.stringify(secret).slice(1, -1),
  // In base64, 0, 1 or 2 bytes stand before the secret in a group of three bytes.
  ...[0, 1, 2].map((shift) => {
    const encoded = Buffer.from(`${" ".repeat(shift)}${secret}`).toString("base64");
    // The first and the last characters also depend on the bytes around the secret.
    return encoded.slice(shift === 0 ? 0 : shift + 1, -4);
  }),
];
