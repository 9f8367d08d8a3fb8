import type { Pod } from "kubernetes-types/core/v1.d.ts";
import { isAllowed, parseNetwork } from "./address.ts";

const placeholders = ["name", "namespace", "uid"] as const;
const host = /^https?:\/\/([^/?#]*)/;

/** Returns what is wrong with an address that may contain {name}, {namespace} and {uid}, and {ip} as its host. */
export const faultOfTemplate = (template: string): string | undefined => {
  const [, named = ""] = host.exec(template) ?? [];
  const isOfPods = /^\{ip\}(:\d{1,5})?$/.test(named);
  if (!isOfPods && /[{}@%\s\\]/.test(named)) return "a host, or {ip} in its place, and nothing else before the path";
  const located = isOfPods ? template.replace("{ip}", "ip") : template;
  const plain = placeholders.reduce((text, name) => text.replaceAll(`{${name}}`, "x"), located);
  if (named === "" || /[{}\s\\]/.test(plain) || !URL.canParse(plain))
    return "http:// or https://, a host, and a path with {name}, {namespace} and {uid} where they belong";
};

/** Returns the address for a pod; undefined if it needs {ip} and the pod has no address that may be called. */
export const addressFor = (
  template: string,
  { metadata = {}, status = {} }: Pod,
  addresses: string[],
): string | undefined => {
  const networks = addresses.map(parseNetwork).filter((network) => network !== undefined);
  const own = [...(status.podIPs ?? []).map(({ ip }) => ip), status.podIP].find(
    (ip) => ip !== undefined && isAllowed(ip, networks),
  );
  if (template.includes("{ip}") && own === undefined) return undefined;
  const shown = own?.includes(":") ? `[${own}]` : (own ?? "");
  return placeholders.reduce(
    (text, name) => text.replaceAll(`{${name}}`, () => encodeURIComponent(metadata[name] ?? "")),
    template.replace("{ip}", shown),
  );
};
