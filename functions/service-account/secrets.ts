import type { Pod, ServiceAccount } from "postern/kubernetes/core/v1";
import { listContainers } from "postern/objects/pod";
import { listContainerSecrets } from "postern/objects/secret";

/**
 * Describes the first Secret that a pod uses although its ServiceAccount doesn't list it; undefined if there is none.
 * Projected volumes are not checked, as in kube-apiserver's plugin.
 */
export const describeUnlistedSecret = (pod: Pod, account: ServiceAccount): string | undefined => {
  const { imagePullSecrets = [], volumes = [] } = pod.spec ?? {};
  const listed = listNames(account.secrets);
  const pulling = listNames(account.imagePullSecrets);
  const unlistedVolumes = volumes.filter(({ secret }) => secret && !listed.has(secret.secretName ?? ""));
  const [first] = [
    ...unlistedVolumes.map(({ secret }) => `volume with ${describeNotAllowed(secret?.secretName ?? "", account)}`),
    ...listUnlistedSecrets(pod, "initContainers", account),
    ...listUnlistedSecrets(pod, "containers", account),
    ...imagePullSecrets.flatMap(({ name = "" }, index) =>
      pulling.has(name)
        ? []
        : [
            `imagePullSecrets[${index}].name="${name}" is not allowed because service account ${account.metadata?.name} does not reference that imagePullSecret`,
          ],
    ),
  ];
  return first;
};

/** Describes the first Secret in ephemeral containers that the account doesn't list; undefined if there is none. */
export const findUnlistedEphemeralSecret = (pod: Pod, account: ServiceAccount): string | undefined =>
  listUnlistedSecrets(pod, "ephemeralContainers", account)[0];

const kindNames = {
  initContainers: "init container",
  containers: "container",
  ephemeralContainers: "ephemeral container",
} as const;

/** Describes the Secrets in containers of one kind that the account doesn't list. */
const listUnlistedSecrets = (pod: Pod, kind: keyof typeof kindNames, account: ServiceAccount): string[] => {
  const listed = listNames(account.secrets);
  return listContainers(pod, [kind]).flatMap(({ container }) =>
    listContainerSecrets(container)
      .filter(({ name }) => !listed.has(name))
      .map(
        ({ by, name }) =>
          `${kindNames[kind]} ${container.name ?? ""} with ${by} referencing ${describeNotAllowed(name, account)}`,
      ),
  );
};

const describeNotAllowed = (name: string, account: ServiceAccount) =>
  `secret.secretName="${name}" is not allowed because service account ${account.metadata?.name} does not reference that secret`;

const listNames = (references: readonly { name?: string }[] = []) => new Set(references.map(({ name = "" }) => name));
