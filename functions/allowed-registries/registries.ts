import { type Image, parseImage } from "postern/objects/image";

/** Reports whether an image's registry is allowed. Entries: `ghcr.io`, `ghcr.io/acme`, `*.corp.example`. */
export const isAllowedRegistry = (registries: string[], { registry, repository }: Image): boolean =>
  registries.some((entry) => {
    const [host = "", ...prefix] = entry.split("/");
    const isThere = host.startsWith("*.") ? registry.endsWith(host.slice(1)) : registry === host;
    return isThere && `${repository}/`.startsWith([...prefix, ""].join("/"));
  });

/** Reports whether an entry of the settings names a registry, with or without a wildcard or a path. */
export const isRegistryEntry = (entry: unknown): boolean => {
  if (typeof entry !== "string") return false;
  const plain = entry.replace(/^\*\./, "any.");
  const below = parseImage(`${plain}/some/image`);
  return below !== undefined && plain.split("/")[0] === below.registry;
};

const label = "[a-z0-9]+(-+[a-z0-9]+)*";
const component = "/[a-z0-9]+([._-][a-z0-9]+)*";

/**
 * Returns a regular expression for images of the allowed registries with a complete name, as in
 * `docker.io/library/nginx`.
 */
export const buildAllowedPattern = (registries: string[]): string => {
  const places = registries.map((entry) => {
    const place = entry.replace(/[.[\]]/g, "\\$&").replace(/^\*\\\./, `(${label}\\.)+`);
    const isFull = entry.includes("/") && !entry.startsWith("docker.io/");
    return isFull ? place : `${place}${component}`;
  });
  return `^(${places.join("|")})(${component})*(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@sha256:[a-f0-9]{64})?$`;
};
