import { type Image, parseImage } from "postern/objects/image";

/** Reports whether an image is in one of the registries, such as `ghcr.io`, `ghcr.io/acme` and `*.corp.example`. */
export const isAllowedRegistry = (registries: string[], { registry, repository }: Image): boolean =>
  registries.some((entry) => {
    const [host = "", ...prefix] = entry.split("/");
    const isInRegistry = host.startsWith("*.") ? registry.endsWith(host.slice(1)) : registry === host;
    // Both paths end with a slash, so that the registry `ghcr.io/acme` doesn't allow `ghcr.io/acme2/app`.
    return isInRegistry && `${repository}/`.startsWith([...prefix, ""].join("/"));
  });

/** Reports whether an entry of the settings names a registry, with or without a wildcard or a path. */
export const isRegistryEntry = (entry: unknown): boolean => {
  if (typeof entry !== "string") return false;
  const withoutWildcard = entry.replace(/^\*\./, "any.");
  const exampleImage = parseImage(`${withoutWildcard}/some/image`);
  // `acme` is no registry: the image `acme/some/image` is on Docker Hub, with `acme` as the first part of its path.
  return exampleImage !== undefined && withoutWildcard.split("/")[0] === exampleImage.registry;
};

/** A part of a host name, such as `corp`. */
const label = "[a-z0-9]+(-+[a-z0-9]+)*";
/** A part of a repository with the slash before it, such as `/nginx`. */
const component = "/[a-z0-9]+([._-][a-z0-9]+)*";

/** Returns a regular expression for names of allowed images. The API server calls the rule only for other images. */
export const buildAllowedPattern = (registries: string[]): string => {
  const patterns = registries.map((entry) => {
    const pattern = entry.replace(/[.[\]]/g, "\\$&").replace(/^\*\\\./, `(${label}\\.)+`);
    // An entry with a path may be an image. On Docker Hub, the pattern takes it only as a namespace, because the image
    // name `docker.io/acme` means `docker.io/library/acme`. So an image that is an entry, such as
    // `docker.io/library/nginx`, doesn't match: the API server calls the rule, which then allows it.
    const mayBeRepository = entry.includes("/") && !entry.startsWith("docker.io/");
    return mayBeRepository ? pattern : `${pattern}${component}`;
  });
  return `^(${patterns.join("|")})(${component})*(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@sha256:[a-f0-9]{64})?$`;
};
