import { writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { describe } from "node:test";
import { buildKubeconfig } from "../checkout.ts";
import { requireBinaries } from "../control-plane/binaries.ts";
import { bootCluster } from "../control-plane/cluster.ts";
import { findKubectl } from "../kubectl/kubectl.ts";
import { testPages } from "../pages.ts";
import { needs } from "../parts.ts";

describe("the pages whose commands call an API server", await needs("API server", "kubectl"), () =>
  testPages("cluster", async (folder) => {
    const { program = "" } = (await findKubectl()) ?? {};
    // There is no controller that creates the ServiceAccounts of namespaces. Without them, the plugin refuses each Pod.
    const cluster = await bootCluster(await requireBinaries(), { disable: ["ServiceAccount"] });
    const kubeconfig = join(folder, "kubeconfig");
    await writeFile(kubeconfig, buildKubeconfig({ local: cluster }), { mode: 0o600 });
    return { env: { KUBECONFIG: kubeconfig }, path: dirname(program), stop: cluster.stop };
  }),
);
