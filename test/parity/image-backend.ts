// The backend that the plugin ImagePolicyWebhook and its rule ask about images.
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { generateCertificate } from "../../infra/keys/certificates.ts";
import { readOrCreateServerCertificate } from "../../infra/keys/keys.ts";
import { breakGlassAnnotation } from "./generators/scenarios.ts";
import { openScriptedWebhookEndpoints, type TestEndpointScript } from "./scripted-endpoints.ts";

/**
 * Opens a backend that answers by scripts and requires a client certificate. Writes the certificates and, for each
 * script, a kubeconfig to the folder. Returns the paths of the kubeconfigs.
 */
export const openImageBackend = async <Name extends string>(
  folder: string,
  stack: AsyncDisposableStack,
  scripts: Record<Name, TestEndpointScript>,
): Promise<Record<Name, string>> => {
  const certificate = await readOrCreateServerCertificate(folder, "127.0.0.1");
  const caKey = await readFile(join(folder, "ca.key"), "utf8");
  const client = await generateCertificate(certificate.ca, caKey, ["client"], "clientAuth");
  await writeFile(join(folder, "client.crt"), client.certificate);
  await writeFile(join(folder, "client.key"), client.key, { mode: 0o600 });
  const { url, stop } = await openScriptedWebhookEndpoints(certificate, scripts, certificate.ca);
  stack.defer(stop);
  const files = Object.keys(scripts).map(async (name) => {
    const file = join(folder, `${name}.kubeconfig`);
    const body = {
      apiVersion: "v1",
      kind: "Config",
      "current-context": "backend",
      clusters: [{ name: "backend", cluster: { server: `${url}/${name}`, "certificate-authority": "ca.crt" } }],
      users: [{ name: "postern", user: { "client-certificate": "client.crt", "client-key": "client.key" } }],
      contexts: [{ name: "backend", context: { cluster: "backend", user: "postern" } }],
    };
    await writeFile(file, JSON.stringify(body));
    return [name, file];
  });
  return Object.fromEntries(await Promise.all(files));
};

/** Answers an ImageReview by the names of its images. For some images, the answer is invalid on purpose. */
export const answerAboutImages: TestEndpointScript = (review) => {
  const { containers, annotations } = Object(Object(review).spec);
  const images: string[] = [containers].flat().map((container) => String(Object(container).image));
  const hasImageWith = (part: string) => images.some((image) => image.includes(part));
  const answer = (status: object) => ({ body: JSON.stringify({ ...Object(review), status }) });
  if (Object(annotations)[breakGlassAnnotation] !== undefined) return answer({ allowed: true });
  if (hasImageWith("@sha256")) return { code: 404, body: "nothing here" };
  if (hasImageWith("fpga")) return { body: "no JSON" };
  if (hasImageWith(":latest")) return answer({ allowed: false, reason: "latest is no version" });
  if (hasImageWith(":5000/")) return answer({ allowed: false });
  return answer({ allowed: true, auditAnnotations: { judged: "yes" } });
};
