// Browsers start no worker from a file: page, and the site's search needs one. This runs the worker's script in a hidden frame instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const base = new URL(url, document.baseURI);
      this.onmessage = null;
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.ready = new Promise((resolve) => {
        const start = () => {
          const inside = this.frame.contentWindow, page = this.frame.contentDocument;
          const load = (source) => new Promise((loaded) => {
            const script = page.createElement("script");
            script.src = new URL(source, base);
            script.onload = loaded;
            page.body.append(script);
          });
          inside.receive = inside.postMessage.bind(inside);
          inside.postMessage = (data) => {
            const event = new MessageEvent("message", { data });
            this.dispatchEvent(event);
            if (this.onmessage) this.onmessage(event);
          };
          inside.importScripts = (...sources) => sources.reduce((before, one) => before.then(() => load(one)), Promise.resolve());
          load(base).then(() => resolve(inside));
        };
        if (document.body) this.attach(start);
        else document.addEventListener("DOMContentLoaded", () => this.attach(start));
      });
    }
    attach(start) {
      document.body.append(this.frame);
      start();
    }
    postMessage(data) {
      this.ready.then((inside) => inside.receive(data, "*"));
    }
    terminate() {
      this.frame.remove();
    }
  };
}
