/** An image reference, with the default registry and `library/` filled in as containerd and Docker do. */
export interface Image {
  registry: string;
  repository: string;
  tag: string | undefined;
  digest: string | undefined;
}

/** The most characters of an image reference that is parsed. Valid references are shorter. Limits the parsing time. */
const maxLength = 1024;

const defaultRegistry = "docker.io";

// Regular expressions for the parts of an image reference, by the grammar of github.com/distribution/reference. Each
// can match a text in only one way, so they don't backtrack far.
const hostForm =
  /^(?:[A-Za-z0-9]+(?:-+[A-Za-z0-9]+)*(?:\.[A-Za-z0-9]+(?:-+[A-Za-z0-9]+)*)*|\[[A-Fa-f0-9:]+\])(?::[0-9]+)?$/;
const componentForm = /^[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*$/;
const tagForm = /^\w[\w.-]{0,127}$/;
const digestForm = /^(?:sha256:[a-f0-9]{64}|sha384:[a-f0-9]{96}|sha512:[a-f0-9]{128})$/;
/** An image's ID in Docker; no registry accepts it as a name. */
const imageIdForm = /^[a-f0-9]{64}$/;

/** Parses a reference such as `nginx`, `ghcr.io/acme/app:1` or `host:5000/app@sha256:…`; undefined if invalid. */
export const parseImage = (text: string): Image | undefined => {
  if (text.length > maxLength || imageIdForm.test(text)) return undefined;

  const [nameAndTag = "", digest, secondDigest] = text.split("@");
  const colon = nameAndTag.lastIndexOf(":");
  // A colon before the last slash belongs to the registry's port.
  const hasTag = colon > nameAndTag.lastIndexOf("/");
  const name = hasTag ? nameAndTag.slice(0, colon) : nameAndTag;
  const tag = hasTag ? nameAndTag.slice(colon + 1) : undefined;

  const slash = name.indexOf("/");
  const firstPart = name.slice(0, Math.max(slash, 0));
  const hasHost = firstPart === "localhost" || /[.:A-Z]/.test(firstPart);
  const registry = hasHost && firstPart !== `index.${defaultRegistry}` ? firstPart : defaultRegistry;
  const path = hasHost ? name.slice(slash + 1) : name;
  const repository = registry === defaultRegistry && !path.includes("/") ? `library/${path}` : path;

  const isValid =
    secondDigest === undefined &&
    // Runtimes accept a registry's host with an underscore, although the grammar of image names doesn't allow it.
    (hostForm.test(registry) || componentForm.test(registry)) &&
    repository.length <= 255 &&
    repository.split("/").every((part) => componentForm.test(part)) &&
    (tag === undefined || tagForm.test(tag)) &&
    (digest === undefined || digestForm.test(digest));
  return isValid ? { registry, repository, tag, digest } : undefined;
};

/** Returns the full reference, such as `docker.io/library/nginx:1`. */
export const formatImage = ({ registry, repository, tag, digest }: Image): string =>
  `${registry}/${repository}${tag ? `:${tag}` : ""}${digest ? `@${digest}` : ""}`;
