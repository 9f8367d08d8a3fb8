/** A seccomp or AppArmor profile: a field of today's pods, which were annotations when policies were written. */
export interface Profile {
  type: "RuntimeDefault" | "Unconfined" | "Localhost";
  localhostProfile?: string;
}

/** As the annotation says it. */
export const textOf = (profile: Profile | undefined): string | undefined => {
  if (profile === undefined) return undefined;
  if (profile.type === "Localhost") return `localhost/${profile.localhostProfile ?? ""}`;
  return profile.type === "Unconfined" ? "unconfined" : "runtime/default";
};

/** As the field says it; undefined where it is none. */
export const profileOf = (text = ""): Profile | undefined => {
  const local = "localhost/";
  if (text === "runtime/default" || text === "docker/default") return { type: "RuntimeDefault" };
  if (text === "unconfined") return { type: "Unconfined" };
  return text.startsWith(local) && text.length > local.length
    ? { type: "Localhost", localhostProfile: text.slice(local.length) }
    : undefined;
};
