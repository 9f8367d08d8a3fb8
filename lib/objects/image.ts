/** An image reference whose missing parts are filled in, as containerd and Docker do. */
export interface Image {
  registry: string;
  repository: string;
  tag: string | undefined;
  digest: string | undefined;
}

/** The most characters of an image reference, more than all its parts need; limits the work for hostile texts. */
const longest = 1024;

const hub = "docker.io";

// Regular expressions for the parts of an image reference, by the grammar of github.com/distribution/reference.
// Matching is unambiguous, so that none backtracks far.
const host =
  /^(?:[A-Za-z0-9]+(?:-+[A-Za-z0-9]+)*(?:\.[A-Za-z0-9]+(?:-+[A-Za-z0-9]+)*)*|\[[A-Fa-f0-9:]+\])(?::[0-9]+)?$/;
const component = /^[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*$/;
const tagged = /^\w[\w.-]{0,127}$/;
const digested = /^(?:sha256:[a-f0-9]{64}|sha384:[a-f0-9]{96}|sha512:[a-f0-9]{128})$/;
/** An image's ID in Docker; no registry accepts it as a name. */
const identifier = /^[a-f0-9]{64}$/;

/** Parses a reference such as `nginx`, `ghcr.io/acme/app:1` or `host:5000/app@sha256:…`; undefined if invalid. */
export const parseImage = (text: string): Image | undefined => {
  if (text.length > longest || identifier.test(text)) return undefined;

  const [located = "", digest, surplus] = text.split("@");
  const colon = located.lastIndexOf(":");
  const hasTag = colon > located.lastIndexOf("/");
  const name = hasTag ? located.slice(0, colon) : located;
  const tag = hasTag ? located.slice(colon + 1) : undefined;

  const slash = name.indexOf("/");
  const first = name.slice(0, Math.max(slash, 0));
  const hasHost = first === "localhost" || /[.:A-Z]/.test(first);
  const registry = hasHost && first !== `index.${hub}` ? first : hub;
  const path = hasHost ? name.slice(slash + 1) : name;
  const repository = registry === hub && !path.includes("/") ? `library/${path}` : path;

  const fits =
    surplus === undefined &&
    // The grammar of image names allows no underscore in a registry's host. Runtimes accept such a host all the same.
    (host.test(registry) || component.test(registry)) &&
    repository.length <= 255 &&
    repository.split("/").every((part) => component.test(part)) &&
    (tag === undefined || tagged.test(tag)) &&
    (digest === undefined || digested.test(digest));
  return fits ? { registry, repository, tag, digest } : undefined;
};

/** Returns the full reference, such as `docker.io/library/nginx:1`. */
export const formatImage = ({ registry, repository, tag, digest }: Image): string =>
  `${registry}/${repository}${tag ? `:${tag}` : ""}${digest ? `@${digest}` : ""}`;
